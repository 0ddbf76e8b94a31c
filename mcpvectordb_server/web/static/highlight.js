// Programs in colour: comments, strings, numbers and keywords, by one pass over the text. It knows
// families of languages, not grammars: what it does not recognise stays as it is.

const C_LIKE = "c h cc cpp hpp cs go java js jsx kt php rs scala swift ts tsx css scss less".split(" ");
const HASHED = "py rb sh bash zsh fish toml yaml yml r pl ps1 ini cfg conf dockerfile makefile mk tf".split(" ");
const DASHED = "sql lua hs ada".split(" ");
const COMMENTS = new Map([
	...C_LIKE.map((name) => [name, String.raw`\/\/.*|\/\*[\s\S]*?(?:\*\/|$)`]),
	...HASHED.map((name) => [name, String.raw`(?<![\w$&])#.*`]),
	...DASHED.map((name) => [name, String.raw`--.*|\/\*[\s\S]*?(?:\*\/|$)`]),
]);
// Other names of languages: each with the one that is known.
const NAMES =
	"python py,javascript js,typescript ts,rust rs,ruby rb,shell sh,console sh,c++ cpp,golang go,csharp cs,kotlin kt,json js,jsonc js,html xml,svg xml";
const KNOWN = new Map(NAMES.split(",").map((pair) => pair.split(" ")));
const TAGS = String.raw`<!--[\s\S]*?(?:-->|$)|(?<keyword><\/?[\w:.-]+|\/?>)`;
const STRINGS = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const TEMPLATES = String.raw`|${"`"}(?:\\[\s\S]|[^${"`"}\\])*${"`"}?`;
const KEYWORDS =
	"and as assert async await break case catch class const continue def default defer del do elif else end enum except export extends extern false finally fn for from func function global go goto if impl implements import in interface is lambda let loop match mod module mut namespace new nil none not null or package pass private protected pub public raise return select self static struct super switch then this throw true try type typeof union unless until use using var void when where while with yield create table insert into update delete values join left inner outer order by group having limit primary key foreign references index view begin commit";
const WORDS = new RegExp(`^(?:${KEYWORDS.split(" ").join("|")})$`);

/** What is to be coloured: `[start, end, kind]`, in order; nothing for a language that is not known. */
export function tokens(text, language) {
	const given = String(language ?? "").toLowerCase();
	const name = KNOWN.get(given) ?? given;
	const markup = name === "xml";
	if (!markup && !COMMENTS.has(name)) return [];
	const strings = STRINGS + (C_LIKE.includes(name) ? TEMPLATES : "");
	const pattern = new RegExp(
		markup
			? `${TAGS}|(?<string>"[^"<>]*"|'[^'<>]*')`
			: `(?<comment>${COMMENTS.get(name)})|(?<string>${strings})|(?<number>\\b\\d[\\w.]*)|(?<word>(?<![-.\\p{L}\\p{N}_$])[\\p{L}_$][\\p{L}\\p{N}_$]*(?!-))`,
		"gu",
	);
	const found = [];
	for (const match of text.matchAll(pattern)) {
		const { comment, string, number, keyword, word } = match.groups;
		const known = word && WORDS.test(name === "sql" ? word.toLowerCase() : word) ? "keyword" : "";
		const kind = string ? "string" : number ? "number" : keyword ? "keyword" : word ? known : comment || markup ? "comment" : "";
		if (kind) found.push([match.index, match.index + match[0].length, kind]);
	}
	return found;
}
