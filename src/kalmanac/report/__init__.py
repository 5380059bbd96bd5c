"""Reports from run folders alone: tables, the paper's figures, one page. No torch in here.

Data walks one way: `runs` reads folders, `tasks` says what each run is, `scores` makes numbers of
them, `statistics` sums these up, the `*_figure` modules and `tables` show them, `paper` knows which
of the paper's figures needs what, `page` binds all in one HTML file, `command` is the verb.
"""
