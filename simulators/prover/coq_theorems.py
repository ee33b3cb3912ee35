"""Lemmas of Coq's standard library with a proof that Coq 8.16.1 accepts.

Searched breadth first, with at most 700 tries per lemma, among the lemmas of 39 modules that Arith, List, Lia and Bool
load: about 20 tactics and, for each hypothesis, `rewrite`, `apply`, `destruct`, `inversion` or `induction`.
"""

import re

_TABLE = """
Arith.Between.bet_eq: intros. subst. left.
Arith.Between.event_O: intros. destruct H. inversion H. congruence.
Arith.Between.in_int_intro: split. lia. lia.
Arith.Between.in_int_lt: intros. destruct H. lia.
Arith.Compare_dec.not_eq: lia.
Arith.Compare_dec.not_ge: lia.
Arith.Compare_dec.not_gt: lia.
Arith.Compare_dec.not_le: lia.
Arith.Compare_dec.not_lt: lia.
Arith.PeanoNat.Nat.add_succ_l: lia.
Arith.PeanoNat.Nat.compare_succ: auto.
Arith.PeanoNat.Nat.lt_succ_r: lia.
Arith.PeanoNat.Nat.max_l: lia.
Arith.PeanoNat.Nat.max_r: lia.
Arith.PeanoNat.Nat.mul_0_l: lia.
Arith.PeanoNat.Nat.pow_succ_r: auto.
Arith.PeanoNat.Nat.pred_succ: lia.
Arith.PeanoNat.Nat.square_spec: auto.
Arith.PeanoNat.Nat.sub_succ_r: lia.
Bool.Bool.Is_true_eq_left: intros. subst. reflexivity.
Bool.Bool.Is_true_eq_right: intros. subst. reflexivity.
Bool.Bool.andb_false_elim: intros. destruct b1. auto. auto.
Bool.Bool.andb_false_l: lia.
Bool.Bool.andb_false_r: lia.
Bool.Bool.andb_if: intros. destruct b. auto. auto.
Bool.Bool.andb_negb_l: intros. destruct b. lia. lia.
Bool.Bool.andb_orb_distrib_r: intros. destruct b1. auto. lia.
Bool.Bool.andb_true_eq: intros. destruct a. auto. lia.
Bool.Bool.andb_true_r: intros. ring.
Bool.Bool.diff_false_true: lia.
Bool.Bool.eq_bool_prop_elim: intros. subst. reflexivity.
Bool.Bool.eq_true_false_abs: congruence.
Bool.Bool.eq_true_negb_classical: intros. destruct b. lia. lia.
Bool.Bool.eqb_negb2: intros. destruct b. lia. lia.
Bool.Bool.if_negb: intros. destruct b. auto. auto.
Bool.Bool.implb_andb_distrib_r: intros. destruct b1. auto. lia.
Bool.Bool.implb_contrapositive: intros. destruct b1. lia. auto.
Bool.Bool.implb_true_l: auto.
Bool.Bool.implb_true_r: lia.
Bool.Bool.negb_andb: intros. destruct b1. auto. lia.
Bool.Bool.negb_false_iff: intros. destruct b. lia. lia.
Bool.Bool.negb_prop_elim: intros. destruct b. auto. auto.
Bool.Bool.not_true_is_false: intros. destruct b. lia. lia.
Bool.Bool.orb_andb_distrib_r: intros. destruct b1. lia. auto.
Bool.Bool.orb_false_l: auto.
Bool.Bool.orb_prop: intros. destruct a. lia. auto.
Bool.Bool.orb_prop_elim: intros. destruct a. auto. auto.
Bool.Bool.reflect_dec: intros. destruct H. auto. auto.
Bool.Bool.xorb_comm: intros. ring.
Bool.Bool.xorb_move_l_r_1: intros. destruct H. ring.
Bool.Bool.xorb_move_r_l_1: intros. rewrite H. ring.
Bool.Bool.xorb_nilpotent: intros. ring.
Bool.Bool.xorb_true_r: auto.
Init.Datatypes.CompOpp_involutive: intros. destruct c. auto. auto. auto.
Init.Datatypes.andb_prop: intros. destruct a. auto. lia.
Init.Datatypes.andb_true_intro: intros. destruct b1. tauto. lia.
Init.Datatypes.eq_true_ind_r: intros. destruct H0. auto.
Init.Datatypes.eq_true_rec_r: intros. destruct H0. auto.
Init.Datatypes.eq_true_rect_r: intros. destruct H. auto.
Init.Datatypes.rew_pair: intros. subst. auto.
Init.Datatypes.surjective_pairing: tauto.
Init.Logic.absurd: tauto.
Init.Logic.and_cancel_r: tauto.
Init.Logic.and_comm: tauto.
Init.Logic.eq_refl_map_distr: auto.
Init.Logic.eq_stepl: congruence.
Init.Logic.eq_sym: auto.
Init.Logic.eq_sym_involutive: intros. rewrite e. auto.
Init.Logic.eq_sym_map_distr: intros. rewrite e. auto.
Init.Logic.eq_trans: congruence.
Init.Logic.eq_trans_map: intros. subst. auto.
Init.Logic.eq_trans_map_distr: intros. subst. auto.
Init.Logic.eq_trans_r: congruence.
Init.Logic.eq_trans_refl_l: intros. rewrite e. auto.
Init.Logic.eq_trans_refl_r: auto.
Init.Logic.eq_trans_sym_distr: intros. subst. auto.
Init.Logic.eq_trans_sym_inv_l: intros. rewrite e. auto.
Init.Logic.eq_trans_sym_inv_r: intros. rewrite e. auto.
Init.Logic.exists_inhabited: intros. destruct H. auto.
Init.Logic.f_equal: congruence.
Init.Logic.f_equal2: congruence.
Init.Logic.f_equal3: congruence.
Init.Logic.f_equal_dep: intros. rewrite H. auto.
Init.Logic.iff_and: auto.
Init.Logic.iff_refl: reflexivity.
Init.Logic.iff_stepl: tauto.
Init.Logic.iff_trans: tauto.
Init.Logic.imp_iff_compat_r: tauto.
Init.Logic.inhabited_covariant: intros. destruct H. auto.
Init.Logic.inst: auto.
Init.Logic.neg_false: tauto.
Init.Logic.not_iff_compat: tauto.
Init.Logic.or_assoc: tauto.
Init.Logic.or_cancel_l: tauto.
Init.Logic.or_iff_compat_l: tauto.
Init.Logic.proj1: tauto.
Init.Logic.proj2: tauto.
Init.Logic.rew_map: intros. subst. auto.
Init.Peano.O_S: lia.
Init.Peano.le_0_n: lia.
Init.Peano.le_S_n: lia.
Init.Peano.le_n_S: lia.
Init.Peano.le_pred: lia.
Init.Peano.max_l: lia.
Init.Peano.max_r: lia.
Init.Peano.min_l: lia.
Init.Peano.min_r: lia.
Init.Peano.mult_n_O: lia.
Init.Peano.mult_n_Sm: lia.
Init.Peano.n_Sn: lia.
Init.Peano.nat_case: intros. destruct n. auto. auto.
Init.Peano.not_eq_S: lia.
Init.Peano.plus_O_n: lia.
Init.Peano.plus_Sn_m: lia.
Init.Peano.plus_n_O: lia.
Init.Peano.plus_n_Sm: lia.
Init.Peano.pred_Sn: lia.
Init.Specif.absurd_set: tauto.
Init.Specif.eq_exist2_curried: intros. subst. auto.
Init.Specif.eq_existT2_curried: intros. subst. auto.
Init.Specif.eq_existT_curried: intros. subst. auto.
Init.Specif.eq_existT_curried_congr: intros. subst. auto.
Init.Specif.eq_existT_curried_map: intros. subst. auto.
Init.Specif.eq_existT_curried_trans: intros. subst. auto.
Init.Specif.eq_exist_curried: intros. subst. auto.
Init.Specif.prod_sigT_prod: tauto.
Init.Specif.rew_sig: intros. subst. destruct u. auto.
Init.Specif.rew_sig2: intros. subst. destruct u. auto.
Init.Specif.rew_sigT: intros. subst. destruct u. auto.
Init.Specif.rew_sigT2: intros. subst. destruct u. auto.
Init.Specif.sigT_prod_sigT: intros. destruct p. auto.
Lists.List.app_comm_cons: auto.
Lists.List.in_cons: simpl. auto.
Lists.List.incl_nil_l: intros. destruct l. congruence. left. destruct H.
Logic.Decidable.contrapositive: intros. destruct H. tauto. tauto.
Logic.Decidable.dec_True: left. lia.
Logic.Decidable.dec_not_not: intros. destruct H. auto. tauto.
Logic.Decidable.imp_not_l: intros. destruct H. tauto. tauto.
Logic.Decidable.imp_simp: intros. destruct H. auto. auto.
Logic.Decidable.not_and: intros. destruct H. auto. auto.
Logic.Decidable.not_and_iff: tauto.
Logic.Decidable.not_false_iff: lia.
Logic.Decidable.not_imp: intros. destruct H. auto. tauto.
Logic.Decidable.not_imp_iff: intros. destruct H. tauto. tauto.
Logic.Decidable.not_imp_rev_iff: intros. destruct H. tauto. tauto.
Logic.Decidable.not_not: intros. destruct H. auto. tauto.
Logic.Decidable.not_not_iff: intros. destruct H. tauto. tauto.
Logic.Decidable.not_or: auto.
Logic.Decidable.not_or_iff: tauto.
Logic.Decidable.not_true_iff: lia.
Logic.Decidable.or_not_l_iff_1: intros. destruct H. tauto. tauto.
Logic.Decidable.or_not_l_iff_2: intros. destruct H. tauto. tauto.
Logic.Decidable.or_not_r_iff_1: intros. destruct H. tauto. tauto.
Logic.Decidable.or_not_r_iff_2: intros. destruct H. tauto. tauto.
"""

LEMMAS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (lemma, tuple(re.split(r"(?<=\.) ", proof)))
    for lemma, _, proof in (line.partition(": ") for line in _TABLE.split("\n")[1:-1])
)
"""Pairs of a lemma's name, without `Coq.`, and the sentences of a proof."""
