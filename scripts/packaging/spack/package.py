# A recipe of Spack: copy this folder to repos/YOURS/packages/lockstep of a repository of yours (`spack repo create`),
# name the repository's address below, and run `spack install lockstep`.
from spack.package import *


class Lockstep(CMakePackage):
    """Distributed data-parallel training of neural networks, with the same bits at every number of ranks."""

    homepage = "https://lockstep.invalid"
    git = "https://lockstep.invalid/lockstep.git"

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks as MPI processes")
    variant("images", default=True, description="Import of PNG and JPEG files")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("hdf5@1.10.8: ~mpi")
    depends_on("boost@1.74: +program_options")
    depends_on("yaml-cpp@0.7:")
    depends_on("spdlog@1.10: +shared")
    depends_on("nlohmann-json@3.11:")
    depends_on("xxhash@0.8:")
    depends_on("zlib-api")
    depends_on("pcre2@10.42:")
    depends_on("zstd")
    depends_on("libarchive")
    depends_on("utf8proc")
    depends_on("mpi", when="+mpi")
    depends_on("libpng", when="+images")
    depends_on("jpeg", when="+images")

    conflicts("%gcc@:11", msg="Lockstep is C++20 and needs g++ 12 or later")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("LOCKSTEP_TESTS", self.run_tests),
            self.define("LOCKSTEP_BENCH", False),
            self.define("LOCKSTEP_MPI", "ON" if self.spec.satisfies("+mpi") else "OFF"),
            self.define("LOCKSTEP_CUDA", "OFF"),
        ]
