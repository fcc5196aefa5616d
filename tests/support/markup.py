"""What a model may write to get at a page, and at whoever reads it."""

MARKUP = {
    "script": "<script>window.owned = 'script'</script>",
    "end of a script": "</script><script>window.owned = 'end'</script>",
    "end of a style": "</style><style>*{display:none}</style>",
    "end of a comment": "--><img src=x onerror=\"window.owned='comment'\">",
    "event handler": "<img src=x onerror=\"window.owned='image'\">",
    "svg": "<svg onload=\"window.owned='svg'\"></svg>",
    "frame": "<iframe srcdoc=\"<script>parent.owned='frame'</script>\"></iframe>",
    "link": "<a href=\"javascript:window.owned='link'\">here</a> javascript:alert(1)",
    "attribute": '" onmouseover="window.owned=\'attribute\'" x="\' autofocus onfocus="window.owned=1"',
    "template": "{{ 7*7 }} {% raw %} ${7*7} {{ fig.__globals__ }}",
    "entity": "&lt;script&gt; &#60;b&#62; &amp; &copy",
    "stylesheet": "<link rel=stylesheet href=http://example.com/x.css>@import url(http://example.com)",
    "refresh": "<meta http-equiv=refresh content=0;url=http://example.com/>",
    "base": "<base href=http://example.com/>",
    "data": "<object data=data:text/html,<script>1</script>></object>",
    "json": '"]}</script>{"a":"\\u003cscript\\u003e',
    "prototype": "__proto__ constructor toString",
    "bidi": "\u202egnp.exe\u202c \u2066a\u2069 \u200f\u200e \u05d0\u05d1",
    "control": "\x00\x07\x1b[31mred\x1b[0m\x7f\x9b31m",
    "lines": "one\u2028two\u2029three\rfour",
    "surrogate": "\ud800x\udfff",
}

ALL_MARKUP = " ".join(MARKUP.values())
"""For free text, which may hold anything."""

WELL_FORMED_MARKUP = " ".join(text for name, text in MARKUP.items() if name != "surrogate")
"""For ids and questions, which hold no lone surrogates."""
