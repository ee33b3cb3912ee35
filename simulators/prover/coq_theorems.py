"""Lemmas of Coq's standard library, each with a proof that Coq 8.16.1 accepts.

The lemmas are from modules that Arith, List, Lia and Bool load. The proofs were found by breadth-first search with at
most 700 attempts per lemma, over about 20 tactics and, for each hypothesis, `rewrite`, `apply`, `destruct`, `inversion`
and `induction`. Of each module, at most 15 lemmas with a proof of one sentence are kept.
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
Arith.PeanoNat.Nat.log2_nonpos: intros. inversion H. auto.
Arith.PeanoNat.Nat.lt_succ_r: lia.
Arith.PeanoNat.Nat.max_l: lia.
Arith.PeanoNat.Nat.max_r: lia.
Arith.PeanoNat.Nat.mul_0_l: lia.
Arith.PeanoNat.Nat.pow_0_r: auto.
Arith.PeanoNat.Nat.pow_succ_r: auto.
Arith.PeanoNat.Nat.pred_succ: lia.
Arith.PeanoNat.Nat.square_spec: auto.
Arith.PeanoNat.Nat.sub_succ_r: lia.
Arith.PeanoNat.Nat.two_succ: lia.
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
Init.Logic.inhabited_covariant: intros. destruct H. auto.
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
NArith.BinNat.N.add_0_l: lia.
NArith.BinNat.N.div2_succ_double: intros. destruct n. auto. auto.
NArith.BinNat.N.le_ge: lia.
NArith.BinNat.N.log2_nonpos: intros. destruct n. auto. lia.
NArith.BinNat.N.min_l: lia.
NArith.BinNat.N.min_r: lia.
NArith.BinNat.N.mul_succ_l: lia.
NArith.BinNat.N.peano_rec_base: auto.
NArith.BinNat.N.pow_0_r: lia.
NArith.BinNat.N.pow_neg_r: lia.
NArith.BinNat.N.pred_succ: lia.
NArith.BinNat.N.succ_double_add: lia.
NArith.BinNat.N.succ_double_inj: lia.
NArith.BinNat.N.succ_double_lt: lia.
NArith.BinNat.N.succ_double_lt_mono: lia.
NArith.BinNat.N.succ_pos_spec: lia.
NArith.BinNat.N.two_succ: lia.
PArith.BinPos.Pos.add_carry_reg_r: lia.
PArith.BinPos.Pos.add_le_mono: lia.
PArith.BinPos.Pos.compare_le_iff: reflexivity.
PArith.BinPos.Pos.ge_le: lia.
PArith.BinPos.Pos.le_1_l: lia.
PArith.BinPos.Pos.le_ge: lia.
PArith.BinPos.Pos.le_nlt: lia.
PArith.BinPos.Pos.le_refl: lia.
PArith.BinPos.Pos.le_trans: lia.
PArith.BinPos.Pos.max_r: lia.
PArith.BinPos.Pos.mul_1_r: lia.
PArith.BinPos.Pos.mul_add_distr_l: lia.
PArith.BinPos.Pos.pred_of_succ_nat: lia.
PArith.BinPos.Pos.sub_decr: lia.
PArith.BinPos.Pos.sub_lt_mono_r: lia.
ZArith.BinInt.Z.abs_neq: lia.
ZArith.BinInt.Z.add_succ_l: lia.
ZArith.BinInt.Z.compare_le_iff: reflexivity.
ZArith.BinInt.Z.div2_spec: auto.
ZArith.BinInt.Z.gtb_ltb: lia.
ZArith.BinInt.Z.leb_le: lia.
ZArith.BinInt.Z.ltb_lt: lia.
ZArith.BinInt.Z.min_l: lia.
ZArith.BinInt.Z.mul_0_l: lia.
ZArith.BinInt.Z.pred_succ: lia.
ZArith.BinInt.Z.sgn_pos: lia.
ZArith.Zbool.Zge_is_le_bool: lia.
ZArith.Zbool.Zgt_is_gt_bool: lia.
ZArith.Zbool.Zgt_is_le_bool: lia.
ZArith.Zbool.Zle_bool_antisym: lia.
ZArith.Zbool.Zle_bool_imp_le: lia.
ZArith.Zbool.Zle_bool_plus_mono: lia.
ZArith.Zbool.Zle_bool_trans: lia.
ZArith.Zbool.Zle_imp_le_bool: lia.
ZArith.Zbool.Zle_is_le_bool: lia.
ZArith.Zbool.Zlt_is_le_bool: lia.
ZArith.Zbool.Zlt_is_lt_bool: lia.
ZArith.Zbool.Zone_min_pos: lia.
ZArith.Zbool.Zone_pos: lia.
ZArith.Zmax.Zmax_left: lia.
ZArith.Zmax.Zmax_spec: lia.
ZArith.Zmax.Zpos_max_1: lia.
ZArith.Znat.N_nat_Z: lia.
ZArith.Znat.Z_N_nat: lia.
ZArith.Znat.Z_nat_N: lia.
ZArith.Znat.Zabs_N_nat: lia.
ZArith.Znat.Zabs_nat_N: lia.
ZArith.Znat.Zpos_P_of_succ_nat: lia.
ZArith.Znat.inj_0: lia.
ZArith.Znat.inj_gt: lia.
ZArith.Znat.inj_le: lia.
ZArith.Znat.inj_lt: lia.
ZArith.Znat.inj_min: lia.
ZArith.Znat.inj_minus2: lia.
ZArith.Znat.nat_N_Z: lia.
ZArith.Znat.positive_N_Z: lia.
ZArith.Znat.positive_N_nat: lia.
ZArith.Zorder.Zgt_0_le_0_pred: lia.
ZArith.Zorder.Zgt_le_succ: lia.
ZArith.Zorder.Zgt_pos_0: lia.
ZArith.Zorder.Zgt_succ_gt_or_eq: lia.
ZArith.Zorder.Zgt_succ_le: lia.
ZArith.Zorder.Zle_0_minus_le: lia.
ZArith.Zorder.Zle_0_pos: lia.
ZArith.Zorder.Zle_gt_trans: lia.
ZArith.Zorder.Zle_minus_le_0: lia.
ZArith.Zorder.Zle_not_gt: lia.
ZArith.Zorder.Zle_not_lt: lia.
ZArith.Zorder.Zle_succ_le: lia.
ZArith.Zorder.Zlt_not_le: lia.
ZArith.Zorder.Zmult_gt_0_compat: lia.
ZArith.Zorder.Zmult_gt_0_le_0_compat: lia.
"""

LEMMAS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (lemma, tuple(re.split(r"(?<=\.) ", proof)))
    for lemma, _, proof in (line.partition(": ") for line in _TABLE.split("\n")[1:-1])
)
"""Pairs of a lemma's name, without `Coq.`, and the sentences of its proof."""
