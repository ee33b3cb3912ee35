"""Training loop of pipeline stages that learn without play, such as `ground` and `reward_model`."""
