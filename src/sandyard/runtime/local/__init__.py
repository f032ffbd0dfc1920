"""The runtime on this machine: bubblewrap, and a supervisor process for each sandbox."""
