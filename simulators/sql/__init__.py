"""Text-to-SQL simulator: questions about generated databases, answered in SQL."""

from simulators.sql.sql import Sql

__all__ = ["Sql"]
