# A formula for a tap of one's own: brew tap mcpvectordb/tap && brew install mcpvectordb
# `.ci/release` writes dist/mcpvectordb.rb, which has the digest of the sdist; with the zeros that
# stand here brew refuses to install anything.
class Mcpvectordb < Formula
  desc "Documents, notes and memories in one SQLite file, for people and MCP agents"
  homepage "https://github.com/mcpvectordb/mcpvectordb"
  url "https://github.com/mcpvectordb/mcpvectordb/releases/download/v0.1.0/mcpvectordb-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "python@3.14"

  # Dependencies such as onnxruntime come as wheels alone, which resources of a formula cannot be.
  def install
    system "python3.14", "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", "--no-cache-dir", buildpath
    bin.install_symlink libexec/"bin/mcpvectordb", libexec/"bin/mcpvectordb-server"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mcpvectordb --version")
    assert_match "search", shell_output("#{bin}/mcpvectordb-server --db #{testpath}/a.db --list-tools")
  end
end
