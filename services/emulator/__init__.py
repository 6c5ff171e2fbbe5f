"""A local emulator of AWS Lambda: Invoke API in front, Runtime API behind."""
