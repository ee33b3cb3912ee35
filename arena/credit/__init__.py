"""Credit assignment: rewards, advantage estimators, selection and normalisation."""
