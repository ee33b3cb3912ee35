"""Runs on several processes with Ray: DeepSpeed ranks and engines as actors, slow steps of simulators as tasks."""
