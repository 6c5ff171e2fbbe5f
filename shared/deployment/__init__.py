"""The forms of a deployment on AWS, for the code that makes and prices it."""
