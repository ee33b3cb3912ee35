"""The parts of a run's page (`analysis.report`): what was learned, its figures in plain words, pictures, matches."""
