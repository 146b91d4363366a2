! SPDX-License-Identifier: MIT
!
! storm DIR PREFIX NAMES STATUS: OpenMP threads that open the same files at the same moment, as codes do
! that open their input or a restart file in a parallel region. STATUS is unknown or replace.
!
! unknown: every thread opens each of NAMES files, writes its number into a record of its own, and
! closes it. Afterwards all records of all files are looked at. replace: opens and closes only; every
! file is empty afterwards. Prints one line with the time until all were open and closed.
!
! Compile with gfortran -fopenmp. Exit: 0, or 1 with what was wrong.
program storm
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64, error_unit
  use omp_lib
  implicit none
  character(len=512) :: dir, prefix, word, status
  integer :: names, threads, i, bad
  real(real64) :: began, took

  if (command_argument_count() /= 4) then
    write (error_unit, '(a)') 'usage: storm DIR PREFIX NAMES unknown|replace'
    stop 2
  end if
  call get_command_argument(1, dir)
  call get_command_argument(2, prefix)
  call get_command_argument(3, word)
  read (word, *) names
  call get_command_argument(4, status)
  threads = omp_get_max_threads()
  bad = 0

  began = omp_get_wtime()
  !$omp parallel private(i) reduction(+:bad)
  do i = 1, names
    !$omp barrier
    bad = bad + open_one(i)
  end do
  !$omp end parallel
  took = omp_get_wtime() - began

  do i = 1, names
    bad = bad + look_at(i)
  end do
  write (*, '(a,i0,a,i0,a,f0.1,a)') trim(status)//': ', threads, ' threads, ', names, ' names, ', &
    took * 1000, ' ms'
  if (bad /= 0) stop 1

contains

  function name_of(i) result(path)
    integer, intent(in) :: i
    character(len=600) :: path
    write (path, '(a,i0)') trim(dir)//'/'//trim(prefix), i
  end function

  integer function open_one(i) result(wrong)
    integer, intent(in) :: i
    integer :: u, ios
    integer(int32) :: me
    me = omp_get_thread_num() + 1
    wrong = 0
    open (newunit=u, file=trim(name_of(i)), status=trim(status), access='stream', form='unformatted', &
          action='readwrite', iostat=ios)
    if (ios /= 0) then
      write (error_unit, '(a,i0)') 'open of '//trim(name_of(i))//': ', ios
      wrong = 1
      return
    end if
    if (status == 'unknown') write (u, pos=4_int64 * (me - 1) + 1, iostat=ios) me
    if (ios /= 0) wrong = 1
    close (u, iostat=ios)
    if (ios /= 0) wrong = 1
  end function

  integer function look_at(i) result(wrong)
    integer, intent(in) :: i
    integer :: u, ios, k
    integer(int64) :: bytes
    integer(int32) :: seen
    wrong = 0
    inquire (file=trim(name_of(i)), size=bytes)
    if (status == 'replace') then
      if (bytes /= 0) wrong = 1
    else
      if (bytes /= 4_int64 * threads) wrong = 1
      open (newunit=u, file=trim(name_of(i)), status='old', access='stream', form='unformatted', &
            action='read', iostat=ios)
      do k = 1, threads
        if (ios == 0) read (u, pos=4_int64 * (k - 1) + 1, iostat=ios) seen
        if (ios /= 0 .or. seen /= k) wrong = 1
      end do
      close (u)
    end if
    if (wrong /= 0) write (error_unit, '(a,i0,a)') trim(name_of(i))//' is not what was written (', bytes, ' bytes)'
  end function
end program
