"""Pictures, tables and pages from files alone: no agent and no torch in here.

Of many runs (`kalmanac report`): `runs` reads folders, `groups` says what each run is, `scores`
makes numbers of them, `statistics` sums these up, `*_items` prepare what `*_figure` draw, `tables`
are tables, `paper` knows which of the paper's figures needs what, `page` binds all in one file,
`isolating` leaves out the runs that any of these cannot do with, `making` is the whole in order,
`command` the verb.

Of one episode (`kalmanac watch`): `episode_figure`, `latent_figure` and `animation`.
"""
