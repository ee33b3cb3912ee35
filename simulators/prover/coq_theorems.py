LEMMAS = (("Arith.Plus.plus_lt_reg_l", ("lia.",)),)
