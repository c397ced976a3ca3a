"""Row programs: functions and optimizers that servers run on the rows of chosen keys.

A function is run once, on tracers, which makes a ``RowProgram`` of it: that is what travels, and
neither source nor pickle. See ``ps_backend.program.row_program`` for what servers do with it.

=========  =====================================================================================
kinds      what the arguments of a function are: rows of arrays, values per key, numbers
tracing    a session without servers, in which a function is run on tracers
updates    what a function returns: which rows change, and how
lowering   from the nodes that were made to a ``RowProgram``
numbers    what of the numbers is computed before a call, by the client
traced     a row program, and what a call of it needs
plugin     functions that the servers' operator has loaded, by name
function   ``@dv.rows``: traces a function once for each signature
optimizer  the updates of ``optim``'s stochastic solvers, traced: steps of single rows
optimizers these by name
face       what users find as ``dv.rows``
=========  =====================================================================================
"""
