"""Pictures, tables and pages from files alone: no agent, no environment and no torch in here.

Of many runs (`kalmanac report`): `runs` reads folders, `groups` says what each run is, `scores` makes
numbers of them, `statistics` sums these up, the `*_figure` modules and `tables` show them, `paper`
knows which of the paper's figures needs what, `page` binds all in one HTML file, `command` is the
verb. Of one episode (`kalmanac watch`): `episode_figure`, `latent_figure` and `animation`.
"""
