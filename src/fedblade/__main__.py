"""`python -m fedblade` is the command line."""

from fedblade.cli import main

main()
