"""The long-lived process that mounts, starts and kills on behalf of a backend.

It runs as `python -I -S` with nothing but the standard library, in mount and pid namespaces of its own (and a user
namespace where it isn't root), with a root directory that holds little more than /usr and the interpreter. Whatever it
mounts is invisible to the rest of the machine and gone when it ends; whatever it started dies with it, because it is
pid 1 of its namespace. The backend talks to it over one socket pair (`wire`).

Modules here import each other relatively and nothing else of the package, so that the directory can be put on the path
of a bare interpreter as a package of its own.
"""
