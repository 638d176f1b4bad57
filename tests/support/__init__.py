"""What several test files share: small federations, run folders, models, nodes in one process, scripts."""
