//! A policy as Amazon's IAM has them, as far as the guides' use that language: who writes one down by them is let in,
//! and kept out, by its words.
//!
//! What a statement says that isn't known here is a mistake of the policy, not of a request: it is refused as a whole.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a policy allows and forbids.
#[derive(Clone, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Clone, Debug)]
struct Statement {
    denies: bool,
    actions: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

/// A key, how it is looked at, and with what; of several values one has to be right.
#[derive(Clone, Debug)]
struct Condition {
    how: How,
    key: String,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// It is missing, or isn't.
    Null,
    Is,
    Like,
    MoreThan,
}

/// What is known of a request: the condition keys that it has.
pub type Context = BTreeMap<&'static str, String>;

/// The condition keys that are known here.
const KEYS: [&str; 5] = [
    "s3:prefix",
    "s3:if-none-match",
    "s3:ObjectCreationOperation",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
];

impl Policy {
    /// The policy that a JSON text is: a whole one, or statements with commas between.
    ///
    /// # Panics
    /// If it is none, or says what isn't known here.
    pub fn read(text: &str) -> Policy {
        let whole = serde_json::from_str::<Value>(text);
        let all = match whole.or_else(|_| serde_json::from_str(&format!("[{text}]"))) {
            Ok(Value::Object(mut whole)) if whole.contains_key("Version") => {
                assert_eq!(whole["Version"], "2012-10-17");
                whole.remove("Statement").expect("a policy has statements")
            }
            Ok(statements) => statements,
            Err(error) => panic!("{error}: {text}"),
        };
        Policy { statements: list(&all).into_iter().map(Statement::read).collect() }
    }

    /// With the statements of another one, too.
    #[must_use]
    pub fn and(mut self, other: Policy) -> Policy {
        self.statements.extend(other.statements);
        self
    }

    /// Without those that forbid.
    #[must_use]
    pub fn allowing_alone(mut self) -> Policy {
        self.statements.retain(|statement| !statement.denies);
        self
    }

    /// Without an action, wherever it is allowed.
    #[must_use]
    pub fn without(mut self, action: &str) -> Policy {
        for statement in self.statements.iter_mut().filter(|statement| !statement.denies) {
            statement.actions.retain(|of| of != action);
        }
        self
    }

    /// All actions that it allows, in some cases at least.
    pub fn allowed(&self) -> Vec<String> {
        let those = self.statements.iter().filter(|statement| !statement.denies);
        those.flat_map(|statement| statement.actions.iter().cloned()).collect()
    }

    /// Whether it lets a request do an action with a resource: some statement allows it, and none forbids it.
    pub fn allows(&self, action: &str, resource: &str, context: &Context) -> bool {
        let mut about =
            self.statements.iter().filter(|statement| statement.is_about(action, resource, context)).peekable();
        about.peek().is_some() && about.all(|statement| !statement.denies)
    }
}

impl Statement {
    fn read(of: &Value) -> Statement {
        let of = of.as_object().expect("a statement is an object");
        let known = |name: &&String| matches!(name.as_str(), "Effect" | "Action" | "Resource" | "Condition");
        assert!(of.keys().all(|name| known(&name)), "{of:?}");
        let texts = |name: &str| {
            list(of.get(name).unwrap_or_else(|| panic!("{name} is missing: {of:?}"))).into_iter().map(text).collect()
        };
        let conditions = of.get("Condition").and_then(Value::as_object);
        Statement {
            denies: match of.get("Effect").and_then(Value::as_str) {
                Some("Allow") => false,
                Some("Deny") => true,
                other => panic!("an effect of {other:?}"),
            },
            actions: texts("Action"),
            resources: texts("Resource"),
            conditions: conditions.into_iter().flatten().flat_map(|(how, keys)| Condition::read(how, keys)).collect(),
        }
    }

    fn is_about(&self, action: &str, resource: &str, context: &Context) -> bool {
        self.actions.iter().any(|of| like(of, action))
            && self.resources.iter().any(|of| like(of, resource))
            && self.conditions.iter().all(|condition| condition.holds(context))
    }
}

impl Condition {
    fn read(how: &str, keys: &Value) -> Vec<Condition> {
        let how = match how {
            "Null" => How::Null,
            "StringEquals" | "Bool" => How::Is,
            "StringLike" => How::Like,
            "NumericGreaterThan" => How::MoreThan,
            _ => panic!("a condition of {how}"),
        };
        let keys = keys.as_object().expect("a condition has keys");
        let read = |(key, values): (&String, &Value)| {
            assert!(KEYS.contains(&key.as_str()), "a condition on {key}");
            let values: Vec<String> = list(values).into_iter().map(text).collect();
            let is_yes_or_no = |value: &String| value == "true" || value == "false";
            assert!(!matches!(how, How::Null) || values.iter().all(is_yes_or_no), "{values:?}");
            Condition { how, key: key.clone(), values }
        };
        keys.iter().map(read).collect()
    }

    /// A key that a request doesn't have fulfils nothing but `Null`.
    fn holds(&self, context: &Context) -> bool {
        let found = context.get(self.key.as_str());
        let number = |of: &str| of.parse::<i64>().unwrap_or_else(|_| panic!("{of} is no number"));
        self.values.iter().any(|value| match (self.how, found) {
            (How::Null, found) => found.is_none() == (value == "true"),
            (_, None) => false,
            (How::Is, Some(found)) => found == value,
            (How::Like, Some(found)) => like(value, found),
            (How::MoreThan, Some(found)) => number(found) > number(value),
        })
    }
}

/// One is as good as a list of one.
fn list(of: &Value) -> Vec<&Value> {
    of.as_array().map_or_else(|| vec![of], |all| all.iter().collect())
}

fn text(of: &Value) -> String {
    let text = of.as_str().expect("a text").to_owned();
    // Amazon's take these for a letter, and for a variable.
    assert!(!text.contains('?') && !text.contains("${"), "{text}");
    text
}

/// Whether a text is of a form in which `*` stands for anything, and for nothing, too.
fn like(form: &str, text: &str) -> bool {
    match form.split_once('*') {
        None => form == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| like(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(of: &[(&'static str, &str)]) -> Context {
        of.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_forbidden_goes_before_what_is_allowed() {
        let policy = Policy::read(
            r#"{ "Version": "2012-10-17", "Statement": [
                { "Effect": "Allow", "Action": ["s3:Get", "s3:Put"], "Resource": "arn:b/here/*" },
                { "Effect": "Deny", "Action": "s3:Put", "Resource": "arn:b/*",
                  "Condition": { "Null": { "s3:if-none-match": "true" }, "Bool": { "s3:ObjectCreationOperation": "true" } } } ] }"#,
        );
        let (none, creates) = (context(&[]), context(&[("s3:ObjectCreationOperation", "true")]));
        let named = context(&[("s3:ObjectCreationOperation", "true"), ("s3:if-none-match", "*")]);
        assert!(policy.allows("s3:Get", "arn:b/here/x", &creates));
        assert!(!policy.allows("s3:Get", "arn:b/there/x", &none) && !policy.allows("s3:List", "arn:b/here/x", &none));
        assert!(policy.allows("s3:Put", "arn:b/here/x", &none) && policy.allows("s3:Put", "arn:b/here/x", &named));
        assert!(!policy.allows("s3:Put", "arn:b/here/x", &creates));
        assert!(policy.clone().allowing_alone().allows("s3:Put", "arn:b/here/x", &creates));
        assert!(!policy.clone().without("s3:Get").allows("s3:Get", "arn:b/here/x", &none));
        assert_eq!(policy.allowed(), ["s3:Get", "s3:Put"]);
    }

    #[test]
    fn conditions_hold_for_what_a_request_has() {
        let of = |how: &str, value: &str| {
            let condition = format!(r#""Condition": {{ "{how}": {{ "s3:prefix": "{value}" }} }}"#);
            Policy::read(&format!(r#"{{ "Effect": "Allow", "Action": "a", "Resource": "r", {condition} }}"#))
        };
        for (how, value, found, holds) in [
            ("StringLike", "p/*", "p/", true),
            ("StringLike", "p/*", "p", false),
            ("StringLike", "*x*z", "axyyz", true),
            ("StringEquals", "p/*", "p/x", false),
            ("NumericGreaterThan", "30", "31", true),
            ("NumericGreaterThan", "30", "30", false),
            ("Null", "true", "", false),
            ("Null", "false", "", true),
        ] {
            let policy = of(how, value);
            assert_eq!(policy.allows("a", "r", &context(&[("s3:prefix", found)])), holds, "{how} {value} {found}");
            assert_eq!(policy.allows("a", "r", &context(&[])), how == "Null" && value == "true", "{how} {value}");
        }
    }
}
