"""The execution environments: the emulator's own processes, or containers that connect to it."""
