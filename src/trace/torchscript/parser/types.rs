//! Parser of static types.

use super::*;

impl Parser<'_> {
    /// Parses a type.
    pub(super) fn ty(&mut self) -> Result<TypeExpr> {
        self.nested(Self::unnested_type)
    }

    /// Parses a type without counting the nesting depth.
    fn unnested_type(&mut self) -> Result<TypeExpr> {
        let name = match *self.peek() {
            TokenKind::Name(name) => name,
            TokenKind::Qualified(name) => {
                self.position += 1;
                return Ok(TypeExpr::Class(name.to_owned()));
            }
            _ => return self.expected("a type"),
        };
        self.position += 1;
        if self.eat('[') {
            return self.generic(name);
        }
        Ok(match name {
            "Tensor" => TypeExpr::Tensor,
            "int" | "SymInt" => TypeExpr::Int,
            "float" | "SymFloat" => TypeExpr::Float,
            "bool" | "SymBool" => TypeExpr::Bool,
            "str" => TypeExpr::Str,
            "number" | "Scalar" => TypeExpr::Number,
            "NoneType" | "None" => TypeExpr::None,
            "Device" => TypeExpr::Device,
            "Any" => TypeExpr::Any,
            _ => TypeExpr::Other(name.to_owned()),
        })
    }

    /// Parses the arguments of a generic type, after its name and `[`.
    fn generic(&mut self, name: &str) -> Result<TypeExpr> {
        let offset = self.offset();
        // The empty tuple is `Tuple[()]`.
        if name == "Tuple" && self.eat('(') {
            self.expect(')')?;
            self.expect(']')?;
            return Ok(TypeExpr::Tuple(Vec::new()));
        }
        let arguments = self.list(']', Self::ty)?;
        let boxed = |ty: &TypeExpr| Box::new(ty.clone());
        Ok(match (name, arguments.as_slice()) {
            ("Tuple", _) => TypeExpr::Tuple(arguments),
            ("Union", _) => TypeExpr::Union(arguments),
            ("Optional", [inner]) => TypeExpr::Optional(boxed(inner)),
            ("List", [inner]) => TypeExpr::List(boxed(inner)),
            ("Future" | "Await", [inner]) => TypeExpr::Future(boxed(inner)),
            ("Dict", [key, value]) => TypeExpr::Dict(boxed(key), boxed(value)),
            ("RRef", [inner]) => TypeExpr::Other(format!("RRef[{inner}]")),
            _ => {
                let message = format!("{name} does not take {} types", arguments.len());
                return self.error_at(offset, message);
            }
        })
    }
}
