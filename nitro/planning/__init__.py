"""What a job would take and cost in each place it could be trained, before it is."""
