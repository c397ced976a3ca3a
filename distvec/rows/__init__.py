"""Row programs: functions and optimizers that servers run on the rows of chosen keys.

A function is run once, on tracers, which makes a ``RowProgram`` of it: that is what travels, and
neither source nor pickle. See ``ps_backend.program.row_program`` for what servers do with it.

==========  ====================================================================================
tracer      a session without servers, in which a function is run; the kinds of its arguments
lowering    from the nodes that were made to a ``RowProgram``, and to what a call of it needs
optimizers  the updates of ``optim``'s stochastic solvers, traced: steps of single rows; by name
api         what users find as ``dv.rows``
==========  ====================================================================================
"""
