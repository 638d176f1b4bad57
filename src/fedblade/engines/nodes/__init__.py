"""What the deployed engine is made of: requests to nodes, what they may answer, and how that adds up."""
