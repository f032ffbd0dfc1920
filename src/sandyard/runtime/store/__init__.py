"""The store of files: content-addressed objects in a folder or S3, beside the node's own disk."""
