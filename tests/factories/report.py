"""The data in a report's file, which its page shows."""

import json
from typing import Any


def read_answers(page: str) -> dict[str, Any]:
    """Return the embedded answers by request."""
    embedded = page.partition('<script type="application/json" id="answers">')[2].partition("</script>")[0]
    return dict(json.loads(embedded)["answers"])
