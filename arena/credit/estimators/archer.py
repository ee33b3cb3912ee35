"""ArCHer's advantage: what a turn's reply is worth beyond its state, as a critic of utterances has it."""

from arena.credit.batch import Floats, TurnBatch
from arena.parts.chosen import needs


@needs("values", "action_values")
def archer(batch: TurnBatch, rewards: Floats) -> Floats:
    """The critic's value of the reply minus its value of the state, A_k = Q(s_k, a_k) - V(s_k).

    [T]; the rewards come in through the critic alone, one iteration late. With the critic `archer` Q and V are each
    the lower of two. Zero for every turn while that critic warms up. Source: ArCHer (Zhou et al. 2024), whose actor
    learns from fresh replies at replayed states; here it learns from the turns that were played, like all others.
    """
    return batch.measure("action_values") - batch.measure("values")
