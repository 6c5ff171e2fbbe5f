"""Views for people: messages of the API without effect on decisions."""
