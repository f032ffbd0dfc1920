"""What operators monitor: samples of the last day, the queue, jobs and the provider."""
