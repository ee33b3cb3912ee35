"""More than one process, by Ray: DeepSpeed ranks, engines and slow steps as actors and tasks."""
