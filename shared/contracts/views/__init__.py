"""What people look at: messages of the API that nothing is decided by."""
