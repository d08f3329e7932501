//! Parses expressions of symbolic sizes. They are nested calls in the format of sympy's `srepr`.

use crate::size::Size;
use crate::sizes::Sizes;
use rewire_graph::pointwise::BinaryOp;

/// Maximum nesting depth of calls.
const MAX_DEPTH: usize = 64;

/// Maximum number of terms of a size.
const MAX_TERMS: usize = 1 << 10;

/// Parses an expression.
///
/// # Errors
/// The reason why the expression is invalid or not supported.
pub(crate) fn parse(text: &str, sizes: &mut Sizes) -> Result<Size, String> {
    let mut parser = Parser { rest: text, sizes };
    let size = parser.size(0)?;
    match parser.rest.trim_start() {
        "" => Ok(size),
        rest => Err(format!("`{rest}` after an expression")),
    }
}

fn too_many() -> String {
    format!("a size of more than {MAX_TERMS} terms")
}

/// Maximum denominator of fractions within a size.
const MAX_DENOMINATOR: i64 = 1 << 20;

/// A size divided by a positive integer.
#[derive(Clone, Debug)]
struct Ratio {
    numerator: Size,
    denominator: i64,
}

impl From<Size> for Ratio {
    fn from(numerator: Size) -> Self {
        Self { numerator, denominator: 1 }
    }
}

impl Ratio {
    fn whole(self) -> Result<Size, String> {
        if self.denominator == 1 { Ok(self.numerator) } else { Err("a size that is a fraction".to_owned()) }
    }

    /// Halves numerator and denominator as long as possible.
    fn reduced(mut self) -> Self {
        while self.denominator % 2 == 0
            && let Some(half) = self.numerator.divided(&2.into())
        {
            (self.numerator, self.denominator) = (half, self.denominator / 2);
        }
        self
    }
}

struct Parser<'a> {
    rest: &'a str,
    sizes: &'a mut Sizes,
}

impl<'a> Parser<'a> {
    fn take(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        token
    }

    fn accepts(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        let stripped = self.rest.strip_prefix(token);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        if self.accepts(token) { Ok(()) } else { Err(format!("expected `{token}` before `{}`", self.rest)) }
    }

    fn size(&mut self, depth: usize) -> Result<Size, String> {
        self.ratio(depth)?.whole()
    }

    fn ratio(&mut self, depth: usize) -> Result<Ratio, String> {
        if depth > MAX_DEPTH {
            return Err(format!("an expression of more than {MAX_DEPTH} levels"));
        }
        let head = self.take(|c| c.is_alphanumeric() || c == '_');
        self.expect('(')?;
        match head {
            "Symbol" => return self.symbol().map(Ratio::from),
            "Float" => return self.float(),
            "Integer" => {
                let digits = self.take(|c| c.is_ascii_digit() || c == '-');
                let value: i64 = digits.parse().map_err(|_| format!("no integer: `{digits}`"))?;
                self.expect(')')?;
                return Ok(Size::from(value).into());
            }
            _ => {}
        }
        let mut arguments = vec![];
        while !self.accepts(')') {
            arguments.push(self.ratio(depth + 1)?);
            if !self.accepts(',') {
                self.expect(')')?;
                break;
            }
        }
        let ratio = match self.of_ratios(head, &arguments)? {
            Some(ratio) => ratio,
            None => {
                let sizes = arguments.into_iter().map(Ratio::whole).collect::<Result<Vec<_>, _>>()?;
                self.call(head, &sizes)?.into()
            }
        };
        if ratio.numerator.terms().count() > MAX_TERMS { Err(too_many()) } else { Ok(ratio) }
    }

    /// A float with few binary digits, such as the scale of a resize.
    fn float(&mut self) -> Result<Ratio, String> {
        self.expect('\'')?;
        let digits = self.take(|c| c != '\'');
        self.expect('\'')?;
        self.take(|c| c != ')');
        self.expect(')')?;
        let value: f64 = digits.parse().map_err(|_| format!("no float: `{digits}`"))?;
        let scaled = value * MAX_DENOMINATOR as f64;
        if scaled.fract() != 0.0 || scaled.abs() > f64::from(u32::MAX) {
            return Err(format!("a size times {digits}"));
        }
        Ok(Ratio { numerator: Size::from(scaled as i64), denominator: MAX_DENOMINATOR }.reduced())
    }

    /// Evaluates a function of fractions; `None` if the function does not support them.
    fn of_ratios(&mut self, head: &str, arguments: &[Ratio]) -> Result<Option<Ratio>, String> {
        if arguments.iter().all(|ratio| ratio.denominator == 1) && head != "FloatTrueDiv" && head != "IntTrueDiv" {
            return Ok(None);
        }
        Ok(Some(match (head, arguments) {
            ("Mul", [a, b]) => Ratio {
                numerator: a.numerator.times(&b.numerator),
                denominator: a.denominator.saturating_mul(b.denominator),
            }
            .reduced(),
            ("FloatTrueDiv" | "IntTrueDiv", [a, b]) => match b.numerator.as_const() {
                Some(divisor @ 1..=MAX_DENOMINATOR) if b.denominator == 1 => {
                    Ratio { numerator: a.numerator.clone(), denominator: a.denominator.saturating_mul(divisor) }
                        .reduced()
                }
                _ => return Err(format!("{head} by a size")),
            },
            ("ToFloat" | "Identity", [x]) => x.clone(),
            ("TruncToInt" | "FloorToInt", [x]) if self.sizes.bounds(&x.numerator).0 >= 0 => {
                let quotient = self.sizes.quotient(&x.numerator, &x.denominator.into());
                quotient.ok_or_else(|| format!("{head} of a quotient by 0"))?.into()
            }
            _ => return Err(format!("{head} of fractions in a size")),
        }))
    }

    fn symbol(&mut self) -> Result<Size, String> {
        self.expect('\'')?;
        let name = self.take(|c| c.is_alphanumeric() || c == '_');
        self.expect('\'')?;
        // Skips sympy's assumptions, such as positive=True or integer=True.
        self.take(|c| c != ')');
        self.expect(')')?;
        if !name.starts_with('s') {
            return Err(format!("the size {name} depends on data"));
        }
        Ok(self.sizes.symbol(name))
    }

    fn call(&mut self, head: &str, arguments: &[Size]) -> Result<Size, String> {
        let by_zero = || format!("{head} by 0");
        match (head, arguments) {
            ("Add", _) => Ok(arguments.iter().fold(Size::default(), |sum, size| sum.plus(size))),
            ("Mul", _) => arguments.iter().try_fold(Size::from(1), |product, size| {
                let product = product.times(size);
                if product.terms().count() > MAX_TERMS { Err(too_many()) } else { Ok(product) }
            }),
            ("Max", [first, rest @ ..]) => Ok(rest.iter().fold(first.clone(), |a, b| self.sizes.larger(&a, b))),
            ("Min", [first, rest @ ..]) => Ok(rest.iter().fold(first.clone(), |a, b| self.sizes.smaller(&a, b))),
            ("FloorDiv" | "CleanDiv", [a, b]) => self.sizes.quotient(a, b).ok_or_else(by_zero),
            ("CeilDiv", [a, b]) => {
                let negated = self.sizes.quotient(&Size::default().minus(a), b).ok_or_else(by_zero)?;
                Ok(Size::default().minus(&negated))
            }
            ("Mod" | "PythonMod", [a, b]) => self.sizes.remainder(a, b).ok_or_else(by_zero),
            ("ModularIndexing", [base, divisor, modulus]) => {
                let quotient = self.sizes.quotient(base, divisor).ok_or_else(by_zero)?;
                self.sizes.remainder(&quotient, modulus).ok_or_else(by_zero)
            }
            ("Pow" | "PowByNatural", [base, exponent]) => match exponent.as_const() {
                Some(exponent @ 0..=8) => self.call("Mul", &vec![base.clone(); exponent as usize]),
                _ => Err(format!("the power {exponent:?}")),
            },
            ("TruncToInt" | "FloorToInt" | "ToFloat" | "Identity", [x]) => Ok(x.clone()),
            ("GreaterThan" | "Ge", [a, b]) => Ok(self.sizes.compared(BinaryOp::Ge, a, b)),
            ("LessThan" | "Le", [a, b]) => Ok(self.sizes.compared(BinaryOp::Le, a, b)),
            ("StrictGreaterThan" | "Gt", [a, b]) => Ok(self.sizes.compared(BinaryOp::Gt, a, b)),
            ("StrictLessThan" | "Lt", [a, b]) => Ok(self.sizes.compared(BinaryOp::Lt, a, b)),
            ("Equality" | "Eq", [a, b]) => Ok(self.sizes.compared(BinaryOp::Eq, a, b)),
            ("Unequality" | "Ne", [a, b]) => Ok(self.sizes.compared(BinaryOp::Ne, a, b)),
            _ => Err(format!("{head} of {} arguments in a size", arguments.len())),
        }
    }
}
