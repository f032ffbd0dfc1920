"""All data of an account, wherever it is stored: its export and its removal."""
