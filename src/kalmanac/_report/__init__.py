"""Pictures, tables and pages from files alone: no agent and no torch in here.

Of many runs (`kalmanac report`): `runs` reads folders, `groups` says what each run is, `scores`
computes its numbers, `statistics` sums these up, `figures` draws what knows no task, `best_arm`,
`dmc`, `popgym` and `episodes` prepare the paper's figures, `tables` are tables, `paper` knows which
figure needs what, `page` binds all in one file, `build` is the whole in order.

Of one episode (`kalmanac watch`): `episode_figure` and `episodes`.
"""
