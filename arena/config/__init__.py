"""The experiment: its models, the layers it is made of, and the parts that are chosen by name."""
