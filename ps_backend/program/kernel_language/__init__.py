"""The language of users' kernels: a small part of Python, as a tree of lists that travels as JSON.

Client and server know it: the client makes a tree of a function's source, both check it, and the
server generates code of its own from it. No text of the client is in a tree: what has a name there
has a number here.

A tree is ``{"version": 1, "body": [statement, ...]}``. Arguments are counted as the signature has
them, with what is returned behind; locals are counted, too.

==========================================  ========================================================
``["set", k, x]``                           local ``k`` becomes ``x``
``["put", a, [i, ...], x]``                 an element of argument ``a``
``["for", k, start, stop, step, [...]]``    ``for`` over a range
``["while", x, [...]]``
``["if", x, [...], [...]]``
``["break"]``, ``["continue"]``
``["int", 3]``, ``["float", 0.5]``          numbers; ``["bool", true]``; ``["const", "inf"]``
``["local", k]``, ``["number", a]``         a local, an argument that is a number
``["get", a, [i, ...]]``                    an element
``["extent", a, axis]``                     how long an array is
``[op, x, ...]``                            an operation of ``table.OPS``
==========================================  ========================================================

========  ==========================================================================================
table     the operations, and what they give
check     whether a tree is one, and what its locals are
========  ==========================================================================================
"""
