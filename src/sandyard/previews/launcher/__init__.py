"""The program of a preview, inside its machine: it is sent there as an archive."""
