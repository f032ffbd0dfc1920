"""One module per part: its spec, which imports the part only when it is built."""
