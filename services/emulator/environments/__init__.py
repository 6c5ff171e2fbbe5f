"""The environments invocations run in: our own processes, or those that come to us."""
