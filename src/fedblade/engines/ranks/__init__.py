"""What the distributed engine is made of: processes that talk, shares of a cohort, and sums over ranks."""
