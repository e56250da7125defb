// The collectives of an MPI library, timed as `athanor bench collectives` times its own; prints one JSON object per
// line. mpicxx -O2 mpi_collectives.cpp; mpirun -np 2 ./a.out SECONDS ROUNDS OP,OP,… BYTES,BYTES,…
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

double slowest(double seconds) {
  double most = 0;
  MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) return 2;
  const double seconds = std::atof(argv[1]);
  const int rounds = std::atoi(argv[2]);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (const std::string& op : split(argv[3]))
    for (const std::string& bytes : split(argv[4])) {
      const int n = static_cast<int>(std::atol(bytes.c_str()) / 4), each = std::max(1, n / size);
      std::vector<float> x(static_cast<std::size_t>(std::max(n, each * size))),
          y(x.size() * static_cast<std::size_t>(size));
      std::function<void()> run;
      double per_call = 1;
      if (op == "all_reduce")
        run = [&] { MPI_Allreduce(MPI_IN_PLACE, x.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      if (op == "broadcast") run = [&] { MPI_Bcast(x.data(), n, MPI_FLOAT, 0, MPI_COMM_WORLD); };
      if (op == "all_gather")
        run = [&] { MPI_Allgather(x.data(), n, MPI_FLOAT, y.data(), n, MPI_FLOAT, MPI_COMM_WORLD); };
      if (op == "reduce_scatter")
        run = [&] { MPI_Reduce_scatter_block(x.data(), y.data(), each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      if (op == "barrier") run = [&] { MPI_Barrier(MPI_COMM_WORLD); };
      if (op == "send_recv") {
        per_call = 2;
        run = [&] {
          if (rank == 0) {
            MPI_Send(x.data(), n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(x.data(), n, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          } else if (rank == 1) {
            MPI_Recv(x.data(), n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(x.data(), n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
          }
        };
      }
      if (!run) continue;
      double begin = MPI_Wtime();
      for (int i = 0; i < 3; ++i) run();
      const double once = slowest((MPI_Wtime() - begin) / 3);
      const int calls = std::clamp(static_cast<int>(seconds / std::max(once, 1e-9)), 1, 20000);
      std::vector<double> means;
      for (int round = 0; round < rounds; ++round) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        for (int i = 0; i < calls; ++i) run();
        means.push_back(slowest((MPI_Wtime() - begin) / calls / per_call));
      }
      std::sort(means.begin(), means.end());
      std::vector<double> single;
      MPI_Barrier(MPI_COMM_WORLD);
      for (int i = 0; i < std::max(calls, 10); ++i) {
        begin = MPI_Wtime();
        run();
        single.push_back((MPI_Wtime() - begin) / per_call);
      }
      std::sort(single.begin(), single.end());
      if (rank == 0)
        std::printf("{\"op\": \"%s\", \"bytes\": %s, \"seconds\": %.9g, \"p50\": %.9g}\n", op.c_str(), bytes.c_str(),
                    means[means.size() / 2], single[single.size() / 2]);
    }
  MPI_Finalize();
  return 0;
}
