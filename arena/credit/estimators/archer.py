"""ArCHer's advantage, from an utterance-level critic."""

from arena.credit.batch import Floats, TurnBatch
from arena.parts.part_config import needs


@needs("values", "action_values")
def archer(batch: TurnBatch, rewards: Floats) -> Floats:
    """ArCHer: subtract the critic's value of the state from that of the reply, A_k = Q(s_k, a_k) - V(s_k).

    [T]; rewards enter only through the critic, one iteration late. With the critics `archer`, `ilql` and `monte_carlo`
    Q and V are each the lower of two. Zero for every turn while such a critic warms up. Source: ArCHer (Zhou et al.
    2024), whose actor learns from fresh replies at replayed states; here the actor learns from the played turns.
    """
    return batch.measure("action_values") - batch.measure("values")
