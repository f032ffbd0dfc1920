"""The ports that programs in a sandbox listen on."""
