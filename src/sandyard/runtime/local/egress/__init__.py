"""The egress proxy: the process through which all of a machine's traffic leaves."""
