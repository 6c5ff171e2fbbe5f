"""What is kept on: warm environments and the learners."""
