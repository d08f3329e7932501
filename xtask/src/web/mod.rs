//! The page in `web/` with its library: builds it into a folder for static servers, and serves it.

mod build;
mod server;

pub(crate) use build::{build, missing, write_library};
pub(crate) use server::Server;

/// The command for the page.
#[derive(Debug, PartialEq)]
pub(crate) enum Options {
    /// Build the page.
    Build,
    /// Build and serve the page.
    Serve { port: u16 },
}

impl Options {
    /// Parses `[build | --port N]`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        match arguments {
            [] => Ok(Self::Serve { port: 8080 }),
            ["build"] => Ok(Self::Build),
            ["--port", port] => {
                let wrong = |_| format!("--port takes a number up to {}, got `{port}`", u16::MAX);
                port.parse().map(|port| Self::Serve { port }).map_err(wrong)
            }
            other => Err(format!("web takes `build` or `--port N`, got `{}`", other.join(" "))),
        }
    }
}

/// Builds the page, and serves it until the program ends.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = build()?;
    let Options::Serve { port } = options else {
        eprintln!("\n{} is the page, for any static server", folder.display());
        return Ok(());
    };
    let server = Server::open(folder, *port)?;
    eprintln!("\nthe page is at http://localhost:{}/; Ctrl-C ends", server.port());
    server.run();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        assert_eq!(Options::parse(&[]), Ok(Options::Serve { port: 8080 }));
        assert_eq!(Options::parse(&["build"]), Ok(Options::Build));
        assert_eq!(Options::parse(&["--port", "0"]), Ok(Options::Serve { port: 0 }));
        assert!(Options::parse(&["--port", "70000"]).unwrap_err().contains("got `70000`"));
        assert!(Options::parse(&["serve"]).is_err());
    }
}
