"""Data analysis simulator: questions about tables, answered with Python and SQL over several turns."""

from simulators.data_analysis.data_analysis import DataAnalysis

__all__ = ["DataAnalysis"]
