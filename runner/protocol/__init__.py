"""The `esopt-math-react` protocol as pure functions: text in, text and decisions out.

Byte-exact with the original harness, oddities included: the published scores are scores under these
rules, so they are reproduced here, not improved. Nothing in this package imports another package of
ours or touches clock, disk or network, and every function takes time linear in its text, whatever a
model wrote.

Two readings hold everywhere and are not said again. White space is what `str.isspace` says, Unicode
included; "any case" is what the `re` module's IGNORECASE says, under which `ı` and `İ` are an `i`,
`ſ` is an `s` and the Kelvin sign is a `k`.
"""
