"""Small templates, one a line; most are rendered with CONTEXT."""

CONTEXT = {
    "n": 7, "m": -3, "f": 2.5, "big": 1e16, "tiny": 1.5e-07, "yes": True, "no": False, "nil": None, "empty": "",
    "s": "Hello, World", "u": "Grüße an 日本 👩‍👩‍👧", "ws": "  \t padded \n ", "q": "it's \"quoted\"\\ \n", "lines": "one\ntwo\r\nthree\n\nfive",
    "xs": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "nested": [[1, [2, 3]], {"a": {"b": [1, 2, {"c": "deep"}]}}],
    "d": {"b": 2, "a": 1, "C": 3, "items": "hidden", "get": 5},
    "people": [
        {"name": "Ada", "age": 36, "tags": ["x", "y"]}, {"name": "bob", "age": 17}, {"name": "Cyd", "age": 36, "tags": []},
    ],
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
5.5 % -2
2 ** 10
2 ** 3 ** 2
2 ** -1
-2 ** 2
7 / 2
6 / 3
1e3
1.0
1e16
123456789012345.0
1e-5
0.0001
0.1 + 0.2
1.5e300 * 1e10
1_000 + 0x1f + 0b101 + 0o17
100000000000 * 10
True + 1
+true
- -3
not not n
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' < 'b'
'B' < 'a'
[1, 2] < [1, 3]
(1, 2) == (1, 2)
[1, 2] == (1, 2)
none == false
nil is none and nil == none
xs == [3, 1, 2]
1 in xs
4 in xs
4 not in xs
'ell' in s
'b' in d
'x' in undefined_thing
not 'b' in d
'a' ~ 1 ~ none ~ true ~ 2.0
'a' 'b' "c"
'a' + 'b' * 3
3 * 'ab'
[1] * 3
[1] + [2, 3]
(1,) + (2,)
(1,)
()
[]
{}
{'a': 1, 'b': [1, 'x', none, true, 2.5]}
{'a': 1, 'a': 2}
{1: 'one', none: 0, true: 'yes'}
d
xs
nested
people
u
q
[q, u, ws]
['it\'s', "say \"hi\"", 'both \' and "', '\t\n\r\\', '\x01\x7f\u200b\xe9\U0001F600']
f
big
tiny
[1.0, 1e22, 1e15, 1.5e-07, -0.0]
yes
nil
undefined_thing
'a' if yes
'a' if no
('a' if no) ~ 'b'
'a' if no else 'b' if no else 'c'
n and m
no and n
empty or 'fallback'
0 or none
undefined_thing or 'x'
s[0]
s[-1]
s[100]
s[1:4]
s[:-1]
s[::-1]
s[::2]
s[-3:]
s[5:2]
s[4:1:-1]
u[5:]
u[::-1][:3]
u|length
xs[0]
xs[-1]
xs[1:]
xs[::-1]
xs[10]
(1, 2, 3)[1:]
d['a']
d.a
d['zz']
d.zz
d.items
d['items']
d.items()|list
d.keys()|list
d.values()|list
d.get('a')
d.get('zz')
d.get('zz', 'none there')
d.get
nested[1].a.b[2].c
nested.0.1.0
people[0]['name']
people[0].name.upper()
s.upper() ~ s.lower() ~ s.title() ~ s.capitalize() ~ s.swapcase()
'hello world-foo it\'s'.title()
'hello world-foo (bar) it\'s'|title
'ÀÉ straße'.lower() ~ 'àé'.upper() ~ 'élan vital'|title
s.split(', ')
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'  a  b c '.split()
'  a  b c '.split(none, 1)
'  a  b c '.rsplit(none, 1)
''.split()
''.split(',')
lines.splitlines()
lines.splitlines(true)
'k=v=w'.partition('=')
'k=v=w'.rpartition('=')
'kv'.partition('=')
'kv'.rpartition('=')
ws.strip()
ws.lstrip()
ws.rstrip()
'xxhixyx'.strip('xy')
'xxhix'.lstrip('x')
'日本x日'.strip('日')
s.startswith('Hell')
s.startswith(('x', 'Hell'))
s.endswith('d')
s.replace('l', 'L')
s.replace('l', 'L', 1)
'ab'.replace('', '-')
s.find('o')
s.find('zz')
s.rfind('o')
s.find('o', 5)
s.count('l')
s.index('W')
u.find('日')
', '.join(words)
'ab'.join('xyz')
'{} and {}'.format(1, 'two')
'{1}{0}{name}'.format('a', 'b', name='c')
'{:>6}|{:<6}|{:^6}|{:06.2f}|{:,}'.format('ab', 'cd', 'ef', 3.14159, 1234567)
'%s is %d, %05.1f%%' % ('x', 3, 2.25)
'%s' % 'one'
'%r' % 'one'
'%5s|%-5s|%x' % ('a', 'b', 255)
'%(a)s-%(b)s' % {'a': 1, 'b': 2}
'%s-%s'|format('x', 'y')
'%(a)s'|format(a='named')
'abc'.isdigit() ~ '12'.isdigit() ~ 'ab1'.isalnum() ~ ' '.isspace() ~ 'AB'.isupper() ~ 'ab'.islower() ~ 'ab'.isalpha() ~ ''.isalpha()
'7'.zfill(3) ~ '-7'.zfill(4)
'ab'.center(7, '*') ~ 'ab'.ljust(5) ~ '|' ~ 'ab'.rjust(5)
'prefix-x'.removeprefix('prefix-') ~ 'x.txt'.removesuffix('.txt')
'a\tb\\n\x41\101\u00e9\q'
s|upper
s|lower
s|capitalize
ws|trim
'xxhixx'|trim('x')
s|replace('o', '0')
s|length
xs|length
d|count
undefined_thing|length
undefined_thing|default('none')
undefined_thing|d
empty|default('x')
empty|default('x', true)
nil|default('x')
xs|join(', ')
xs|join
people|join(', ', attribute='name')
xs|first
xs|last
[]|first
s|first
s|last
xs|list
s|list
d|list
xs|sort
xs|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
people|sort(attribute='age,name')|map(attribute='name')|list
people|sort(attribute='age', reverse=true)|map(attribute='name')|list
words|unique|list
words|unique(case_sensitive=true)|list
xs|reverse|list
s|reverse
xs|sum
people|sum(attribute='age')
xs|sum(start=10)
xs|min ~ xs|max ~ words|min ~ words|max
[]|max
people|map(attribute='name')|list
people|map(attribute='tags', default='-')|list
words|map('upper')|list
words|map('replace', 'p', 'P')|join(' ')
[1, 0, 2, none, '']|select|list
[1, 0, 2]|reject|list
[1, 2, 3, 4]|select('even')|list
[1, 2, 3, 4]|reject('divisibleby', 3)|list
[1, 2, 3, 4]|select('gt', 2)|list
people|selectattr('tags')|map(attribute='name')|list
people|selectattr('age', 'equalto', 36)|map(attribute='name')|join(',')
people|selectattr('age', '<', 30)|map(attribute='name')|join(',')
people|rejectattr('tags', 'defined')|map(attribute='name')|list
people|rejectattr('name', 'in', ['Ada'])|map(attribute='name')|list
people|selectattr('name', 'equalto', 'Ada')|first
(people|selectattr('name', 'equalto', 'Zed')|first) is defined
(people|selectattr('name', 'equalto', 'Zed')) and 'generators are true'
d|items|list
d|dictsort
d|dictsort(true)
d|dictsort(reverse=true)
{'x': 2, 'y': 1}|dictsort(by='value')
people|groupby('age')|map(attribute='grouper')|list
people|groupby('age')|map('last')|map('length')|list
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 0)|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3, 4, 5]|slice(3, 'x')|list
'42'|int + 1
'4.7'|int
'x'|int
'x'|int(5)
'ff'|int(0, 16)
'0x1f'|int(base=16)
' 12_000 '|int
3.99|int
-3.99|int
true|int
none|int
'1.5'|float
'x'|float
'1e3'|float
'inf'|float
3|float
-5|abs
m|abs
2.567|round(2)
2.5|round
3.5|round
-2.5|round
2.675|round(2)
42|round
2.1|round(method='ceil')
2.19|round(1, 'floor')
1234.5|round(-2)
42|string ~ none|string ~ [1]|string
'<a href="x">&\'</a>'|e
'<b>'|escape|length
'<b>'|safe
lines|indent
lines|indent(2, true)
lines|indent(2, blank=true)
'a\n\nb'|indent('> ')
'a b_c d-e 1'|wordcount
'the quick brown fox jumps over'|truncate(15)
'the quick brown fox jumps over'|truncate(15, true)
'the quick brown fox jumps over'|truncate(15, true, '~', 0)
'short'|truncate(15)
'ab'|center(9)
d|tojson
people|tojson
people|tojson(indent=2)
{'é': '<b> & \'q\' "d"', 'n': none, 't': true, 'x': 1.0, 'e': [], 'o': {}, 'z': (1, 2)}|tojson
{'é': '日本👩'}|tojson(ensure_ascii=true)
{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true)
{'b': 1, 'a': [1, 2]}|tojson(separators=(',', ':'))
{'b': [1, {'c': []}]}|tojson(indent=4)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
q|tojson
'\x00\x1f\x7f\b\f'|tojson
ws|tojson
1e16|tojson
n is defined and undefined_thing is undefined
undefined_thing is not defined
s is string and n is not string
n is number and f is number and yes is number and s is not number
n is integer and yes is not integer and f is not integer
f is float and n is not float
yes is boolean and n is not boolean
yes is true and no is false and n is not true
nil is none
d is mapping and xs is not mapping
xs is iterable and s is iterable and d is iterable and n is not iterable
xs is sequence and s is sequence and d is sequence and n is not sequence
undefined_thing is iterable
3 is odd and 4 is even
9 is divisibleby 3
9 is divisibleby(2)
n is eq 7 and n is ne 8 and n is gt 6 and n is ge 7 and n is lt 8 and n is le 7
n is equalto 7 and n is greaterthan 6 and n is lessthan 8
1 is in [1, 2]
1 is not in [1, 2]
'abc' is lower and 'ABC' is upper
nil is sameas none and yes is sameas true
range is callable and n is not callable
'upper' is filter and 'odd' is test and 'nope' is filter
range(5)|list
range(2, 5)|list
range(10, 0, -3)|list
range(3)
range(0, 9, 2)
range(5)[1:3]|list
range(5)|length
dict(a=1, b=2)
dict({'x': 1}, y=2)
namespace(a=1).a
namespace(a=1)['a']
namespace({'a': 1}, b=2).b
strftime_now('%Y-%m-%d %H:%M:%S %A %d %B %j')
strftime_now("%d %b %Y")
(1, 2), 3
1, 2
[1, 2,]
{'a': 1,}
xs|join(', ') | upper ~ '!'
-xs[0]|abs
-1|abs
2 + xs|length
'a' ~ 'b'|upper
not yes or yes
1 if 0 or 1
(n|string)[0]
xs.__class__
d.__init__
xs.count(1) ~ xs.index(2)
xs.copy()
d.copy()
[xs, xs]|sum(start=[])
'a-b'|replace('-', '')|upper|lower|title
'%d' % 3.9
'x' * 0
'x' * -1
people[0].tags|join('/')
'a' is string and ('b' if no else none) is none
[1, [2, [3, [4]]]]|tojson
['<|im_', 'end|>']|join
u.upper()
u|title
'ǆ'|capitalize
'x'.join([])
'abc'|list|reverse|join
{'a': [1, 2, {'b': none}]} == {'a': [1, 2, {'b': none}]}
{'a': 1} == {'a': 2}
'a' in {'a': 1}.keys()
('a', 1) in {'a': 1}.items()
1.0 in [1, 2]
s.split(',')[-1].strip().split('r')|last
(s ~ ' ') * 2
s.strip('Hd').lstrip('e')
loop is undefined
people|map(attribute='age')|unique|list
people|map(attribute='age')|sum
['b', 'a']|sort|join
nested|string|length
d|attr('items') is defined
s|attr('upper') is callable
'a,b;c'.replace(',', ';').split(';')
xs|select('in', [1, 2])|list
['a', 'B']|map('lower')|select('equalto', 'b')|list
'ABC'[::-1]|lower
(n > 5 and m < 0) or f == 2.5
n == 7 if yes else no
'%s' % nil
'%s%%' % 5
'%+d' % 5
"{{ not a tag }}"
'{% nor this %}'
"\u0041\U00000042\x43"
""".strip("\n").split("\n")

# An error here is an error there.
ERRORS = r"""
undefined_thing.x
people|map(attribute='tags.0')|list
s.__class__.__mro__
undefined_thing['x']
undefined_thing + 1
undefined_thing()
'a' + 1
1 + 'a'
'a' - 'b'
1 / 0
1 % 0
1 // 0
1 < 'a'
none < 1
nil.x.y
xs.append(4)
d.update({'a': 2})
xs.pop()
d['pop']('a')
xs.nope()
s.__class__.__mro__()
range(1000000)
range(0, 10, 0)
5|length
5 in 6
[1] in 'abc'
1 in 'abc'
xs|nope
1 is nope
raise_exception('stop here')
undefined_thing|tojson
range(3)|tojson
people|selectattr('x', 'nope')|list
{[1]: 2}
{{}: 2}
'%d' % 'x'
'%s %s' % 'x'
'%s' % ('x', 'y')
'{} {}'.format(1)
s.split('')
s.index('zz')
-s
+xs
n()
xs[::0]
(1, 2
[1, 2
{'a': 1
{'a' 1}
1 +
* 2
'open
a b
x is
x |
x.
1 = 2
a ? b
1 is odd is even
[]|first|upper|nope
dict(1)
[1, 'a']|sort
words|join(1, 2, 3)
s|upper(1)
s|replace('a')
n.bit_length.foo.bar
foo(a=1, 2)
foo(a=1, a=2)
true is divisibleby
xs|sum('x')|upper|nope
'a' * 'b'
[1] + (2,)
'a'|indent(foo=3)
""".strip("\n").split("\n")

STATEMENTS = [
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}",
    "{% if no %}a{% elif n == 7 %}b{% endif %}|{% if no %}x{% endif %}|",
    "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}nothing{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in xs %}[{{ loop.previtem }}|{{ x }}|{{ loop.nextitem }}]{% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in xs %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for c in 'añ日' %}({{ c }}){% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]], [4, [5, 6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{{ loop.depth }} {% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(9) %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{% for p in g.list %}{{ p.name }},{% endfor %};{% endfor %}",
    "{% for age, group in people|groupby('age') %}{{ age }}:{{ group|length }};{% endfor %}",
    "{% for x in undefined_thing %}{{ x }}{% else %}empty{% endfor %}",
    "{% set x = 1 %}{% for y in xs %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(t=0, seen=[]) %}{% for y in xs %}{% set ns.t = ns.t + y %}{% set ns.seen = ns.seen + [y] %}{% endfor %}{{ ns.t }} {{ ns.seen }}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y }}{{ ns.y is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}",
    "{% set (a, b) = xs[:2] %}{{ a }}{{ b }}",
    "{% set t = 1, 2 %}{{ t }}",
    "{% set x %}block {{ n }}{% endset %}[{{ x }}]",
    "{% set x | upper | replace('B', 'p') %}block {{ n }}{% endset %}[{{ x }}]",
    "{% set ns = namespace() %}{% set ns.x %}in{% endset %}{{ ns.x }}",
    "{% if yes %}{% set x = 'set inside if' %}{% endif %}{{ x }}",
    "{% if no %}{% set x = 'never' %}{% endif %}[{{ x }}]",
    "{% for i in [1] %}{% set inner = 'lost' %}{% endfor %}[{{ inner }}]",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c='y') }} {{ m(b=5, a=4) }} {{ m() }}",
    "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('hi') }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro outer(x) %}{{ caller('c' ~ x) }}{% endmacro %}{% call(arg) outer(1) %}<{{ arg }}{{ n }}>{% endcall %}",
    "{% macro list() %}<ul>{{ caller() }}</ul>{% endmacro %}{% call list() %}item{% endcall %}",
    "{% macro f(n) %}{% if n > 1 %}{{ n * (f(n - 1)|int) }}{% else %}1{% endif %}{% endmacro %}{{ f(10) }}",
    "{% macro m() %}{% set x = 'inner' %}{{ x }}{% endmacro %}{% set x = 'outer' %}{{ m() }}{{ x }}",
    "{% set g = 'late' %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 'later' %}{{ m() }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}]",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m('<')|upper|length }}{{ m is callable }}",
    "{% macro m(x) %}{{ 'body ' ~ x }}{% endmacro %}{% set r = m(1) %}{{ r|length }}{{ r.upper() }}{{ r == 'body 1' }}",
    "{% filter upper %}a{{ s }}b{% endfilter %}",
    "{% filter replace('a', 'b')|trim %} banana {% endfilter %}!",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}",
    "{% with a = 1, b = n %}{{ a + b }}{% endwith %}",
    "{% set a = 5 %}{% with a = a + 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}{% set x = 1 %}answer{{ x }}{% endgeneration %}{{ x }}",
    "{% for x in xs %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{# a comment #}a{#- trims -#} b {# {{ not run }} {% nor this %} #}c",
    "{% raw %}{{ raw }} {% if %} {# #}{% endraw %}",
    "  {% raw %}\n x \n  {% endraw %}\n y",
    "{%- raw -%}\n x \n{%- endraw -%}\n y",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc",
    "a\n  {%+ if yes %}\n  b\n  {%+ endif %}\nc",
    "a  {% if yes %}  b  {% endif %}  c",
    "a\n{% if yes +%}\nb\n{% endif +%}\nc",
    "a \n {%- if yes -%} \n b \n {%- endif -%} \n c",
    "a \n {{- n -}} \n b",
    "a\n  {{ n }}\n  b",
    "  {# comment #}\nx\n  {#- c -#}  \n y",
    "{% if yes %}\n\n\ntwo newlines stay\n\n{% endif %}\n\nend\n\n",
    "\n\nleading\n",
    "trailing newline\n",
    "trailing newlines\n\n\n",
    "no newline",
    "",
    "\n",
    "{% set x = 1 %}\n{{ x }}\n",
    "\t{% if yes %}tab{% endif %}\t\n",
    "\r\nwindows\r\n{% if yes %}\r\nlines\r\n{% endif %}\r\nend\r\n",
    "{{ '\r\n' }}|{{ 'a\nb' }}",
    "{%if yes%}tight{%endif%}{{n}}",
    "{{-n-}}x{{+n}}",
    "{% if yes %}{{ '{{' }}{{ '}}' }}{% endif %}{ { % }",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}}}}",
    "{{ '%}' }}{{ \"}}\" }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner(', ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set j = joiner() %}{{ j() }}a{{ j() }}b",
    "{% set it = xs|map('string') %}{{ it|join(',') }}|{{ it|join(',') }}",
    "{% set f = s.upper %}{{ f() }}",
    "{% macro a(x) %}[{{ x }}{{ caller() if caller is defined else '' }}]{% endmacro %}{{ a(1) }}{% call a(2) %}!{% endcall %}",
    "{% macro a() %}{{ caller() }}{% endmacro %}{% for x in xs %}{% call a() %}{{ x }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{{ range(3)|map('string')|join('-') }}{% for i in range(xs|length - 1, -1, -1) %}{{ xs[i] }}{% endfor %}",
    "{% for p in people %}{% if loop.first and p.tags is defined %}{{ p.tags[-1] }}{% endif %}{% set _ = p %}{% endfor %}",
    "{{ 'line \\\njoined' }}",
    "{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ y }}{{ x }}",
    "{% set args = [1, 2] %}{% macro m(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*args) }}{{ m(*args, **{'c': 9}) }}",
    "{% for m in people if m.age > 20 and (m.tags is defined) %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% set x = 'a' if no else 'b' %}{{ x }}{% set y = xs if xs else [] %}{{ y|length }}",
    "{{ loop }}{% for x in [1] %}{{ loop.index }}{% endfor %}{{ loop }}",
    "{% set loop_over = people | selectattr('age', 'ge', 20) | list %}{{ loop_over|length }}{{ (loop_over|last).name }}",
    "{% if undefined_thing %}a{% else %}b{% endif %}{% if undefined_thing is defined and undefined_thing.x %}c{% endif %}",
    "{% if xs is not string and xs is iterable and xs is not mapping %}list{% endif %}",
    "{% set content = 'x' %}{% for i in [1, 2] %}{% if i == 1 %}{% set content = content ~ i %}{% endif %}{{ content }}{% endfor %}",
]

STATEMENT_ERRORS = [
    "{% if %}x{% endif %}", "{% if yes %}x", "{% for x in xs %}x", "{% endif %}", "{% else %}", "{% for x xs %}{% endfor %}",
    "{% set x %}", "{% set 1 = 2 %}", "{% set x = %}", "{% nope %}", "{% macro m %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ x", "{% x", "{# x", "{% raw %} x", "{{ }}", "{{ 1 2 }}", "{% break %}", "{% set n.x = 1 %}", "{% set a, b = 1, 2, 3 %}",
    "{% for a, b in xs %}{% endfor %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=1) }}",
    "{% call n %}{% endcall %}", "{% set true = 1 %}", "{% for true in xs %}{% endfor %}", "{% if yes %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ raise_exception('no') }}", "{% for x in 5 %}{% endfor %}",
    "{{ ')' ) }}", "{{ (] }}", "{% with a %}{% endwith %}", "{% filter nope %}x{% endfilter %}", "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
]
