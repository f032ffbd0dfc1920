"""The console's pages, a module for each thing that they are about."""
